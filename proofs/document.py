"""A LaTeX document of statements, derivations, and what came of the proofs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from proofs.statement import Result, Status

PACKAGES = ("amsmath", "amssymb", "geometry")
_PREAMBLE = "\n".join(
    [
        r"\documentclass{article}",
        *(rf"\usepackage{'[margin=2.5cm]' if package == 'geometry' else ''}{{{package}}}" for package in PACKAGES),
        r"\setlength{\parindent}{0pt}",
        r"\begin{document}",
        r"\title{Trust regions from $f$-divergences: what is proved}",
        r"\author{}",
        r"\date{}",
        r"\maketitle",
        r"$P$ is the old policy, $Q$ the new one, $p=P_a$, $r=Q_a/P_a$, $c=(1-rp)/(1-p)$ and $g(p,r)=p f(r)+(1-p)f(c)$ with "
        r"$f$ convex and $f(1)=0$. The band of radius $\delta$ is "
        r"$\{r\in[0,1/p]:g(p,r)\le\delta\}=[\mathrm{lower},\mathrm{upper}]$.",
    ]
)
_THEOREMS = {
    "theorem 1": "Exact reduction",
    "theorem 2": "Shape in the ratio",
    "theorem 3": "Shape in the probability",
    "theorem 4": "Shape in the radius",
    "theorem 5": "Mirror",
    "theorem 6": "Saturation",
    "theorem 7": "Limits",
    "theorem 8": "Exploration margin",
    "theorem 9": "The gradient needs no root",
    "theorem 10": "Ratio clipping is a band",
    "theorem 11": "Nesting",
}
_ESCAPED = (
    {"\\": r"\textbackslash{}"} | {c: "\\" + c for c in "&%$#_{}"} | {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
)
# what stands in names and in `rests_on`; a letter that is missing here is an error, so that no document fails to compile
_IN_MATHEMATICS = {
    "≤": r"\le", "≥": r"\ge", "≠": r"\ne", "≈": r"\approx", "±": r"\pm", "−": "-", "·": r"\cdot", "×": r"\times", "√": r"\surd",
    "∞": r"\infty", "∈": r"\in", "⊆": r"\subseteq", "→": r"\to", "↦": r"\mapsto", "⟹": r"\Rightarrow", "⟺": r"\Leftrightarrow",
    "⇒": r"\Rightarrow", "∀": r"\forall", "∃": r"\exists", "∧": r"\wedge", "∨": r"\vee", "¬": r"\neg", "∇": r"\nabla",
    "Σ": r"\Sigma", "Δ": r"\Delta", "α": r"\alpha", "β": r"\beta", "γ": r"\gamma", "δ": r"\delta", "ε": r"\varepsilon",
    "θ": r"\theta", "λ": r"\lambda", "ν": r"\nu", "π": r"\pi", "σ": r"\sigma", "φ": r"\varphi", "χ": r"\chi", "ψ": r"\psi",
    "ω": r"\omega", "η": r"\eta",
    "μ": r"\mu", "ξ": r"\xi", "ℓ": r"\ell", "½": r"\tfrac12", "¼": r"\tfrac14", "‖": r"\|", "²": "^2", "³": "^3",
    "⁺": "^+", "⁻": "^-", "₀": "_0", "₁": "_1", "₂": "_2", "¹": "^1", "⁴": "^4",
    "|": r"\vert", "<": "<", ">": ">", "ℝ": r"\mathbb{R}",
    "∪": r"\cup", "∩": r"\cap", "′": "'", "ᵏ": "^k",
}  # fmt: skip
_IN_TEXT = {"–": "--", "—": "---", "’": "'", "“": "``", "”": "''", "…": r"\dots{}", "\u00a0": "~", "é": r"\'e"}


def in_text(text: str) -> str:
    """Plain unicode text as LaTeX.

    Raises:
        ValueError: a character without a translation.
    """
    parts = []
    for letter in text:
        if letter in _IN_MATHEMATICS:
            parts.append(f"${_IN_MATHEMATICS[letter]}$")
        elif letter in _IN_TEXT or letter in _ESCAPED:
            parts.append(_IN_TEXT.get(letter) or _ESCAPED[letter])
        elif letter.isascii():
            parts.append(letter)
        else:
            raise ValueError(f"no LaTeX for {letter!r} (U+{ord(letter):04X}) in {text!r}")
    return "".join(parts).replace("$$", "")


def _section(name: str) -> str:
    prefix = name.partition(":")[0]
    if prefix not in _THEOREMS:
        return r"\section*{Over boxes, and closed forms}"
    return rf"\section*{{{prefix.capitalize()}. {_THEOREMS[prefix]}}}"


def _paragraph(result: Result) -> str:
    prefix, _, rest = result.name.partition(": ")
    title = rest[:1].upper() + rest[1:] if prefix in _THEOREMS else result.name
    status = rf"\textbf{{{result.status}}}" if result.status != Status.PROVED else str(result.status)
    rests = "; ".join(in_text(item) for item in result.rests_on)
    lines = [
        rf"\paragraph{{{in_text(title)}.}} {result.latex}",
        rf"\emph{{({status}; {result.method}; rests on: {rests})}}",
    ]
    if result.derivation:
        lines.insert(1, rf"\par\smallskip {result.derivation}")
    return "\n\n".join(lines)


def document(results: Sequence[Result]) -> str:
    """The whole document, a section for each theorem."""
    parts = [_PREAMBLE]
    for section, members in itertools.groupby(results, key=lambda result: _section(result.name)):
        parts += [section, *map(_paragraph, members)]
    return "\n\n".join([*parts, r"\end{document}"]) + "\n"
