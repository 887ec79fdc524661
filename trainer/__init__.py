"""Group relative policy optimisation in miniature: what a clip rule does to the entropy of a policy.

``python -m trainer compare --task bandit`` trains one policy per rule, learning rate and seed and reports the differences
with their uncertainty. Of the library only ``bandtheory.rules`` and ``bandtheory.torch`` are used.
"""
