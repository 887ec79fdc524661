"""Machine-checked proofs of the theory: `python -m proofs` runs them and says what each rests on.

One theorem, one module. A module has functions that build statements, each from the claim that it makes, so that a false
variant can be built as well: `tests/proofs/test_mutations.py` does, and none of those may come out as proved.

Methods, in order of preference:

- **symbolic**: `f` is an undetermined convex function. What a proof may use of it are its tangent inequalities `f(y) ≥ f(x)
  + f'(x)(y − x)`, where `f'(x)` is any subgradient, so kinks are included. A proof is a list of steps (`steps.py`): an
  identity that reduces to 0; a claim written as a combination of tangent gaps with multipliers that are products of
  quantities ≥ 0; an implication between polynomial relations. Sums over the other tokens are taken apart by linearity, for
  any number of tokens.
- **decision procedure**: nonlinear real arithmetic by z3, for all p and δ, without sampling.
- **ball arithmetic**: over whole boxes of (p, δ), by subdivision.
- **limit**: of formulas, by sympy, with the assumptions stated.

What is trusted: sympy's expansion of polynomials and rational functions, its derivatives and, for statements of method
"limit", its limits; z3, for implications (each is asked for its negation, and hypotheses that contradict each other prove
nothing); Arb through python-flint, for balls; and the translation of the words of a statement into the expressions of its
steps, which a reader must judge. The elementary facts that a proof uses without a step, such as "a function with derivative
≥ 0 grows", are listed in `rests_on`.

A proof that ends early, for want of time or means, leaves its statement open.

To add a statement, write a function that takes the claim as an argument with the true one as its default and returns a
`Statement` (`statement.py`), add it to `statements()` of its module, add the module to `registry.MODULES` if it is new, and
plant a false variant of it in `tests/proofs/test_mutations.py`.
"""
