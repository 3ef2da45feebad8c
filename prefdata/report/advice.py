"""One sentence under each figure: what it means for this set, and what to do. Made of the numbers of the report, by rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from prefdata.report.model import Funnel, Issue, Length, StageReport, Totals
from prefdata.report.parts import Dimension, Histogram, Share, Tokens, Value

_MOVED, _MOST, _OFF = (
    0.02,
    0.5,
    0.2,
)  # of the pairs: a share that cleaning moved; that rules the set; of a target: far from it
_ALWAYS = "malformed"  # the stage that cannot be left out
_NO_TRAIT = "ngrams"  # they hold what the answers say, too
_ALL, _FEW, _WIDE = (
    0.9,
    20,
    0.2,
)  # a share that is nearly the set; pairs too few for a group; an interval that says little
_LOST, _CUT = 0.01, 0.05  # shares that a window may lose and cut


def advice(
    action: str, gates: Sequence[Mapping[str, Any]], totals: Totals, funnel: Sequence[Funnel], issues: Sequence[Issue],
    stages: Sequence[StageReport], length: Length, balance: Sequence[Dimension], tokens: Tokens,
    looked_for: Sequence[str],
) -> dict[str, str]:  # fmt: skip
    """The sentences by figure; a figure that is not drawn has none."""
    out = {"funnel": _funnel(action, totals, funnel), "gates": _gates(gates), "issues": _issues(issues)}
    for stage in stages:
        at = f"stage.{stage.key}"
        out |= {
            f"{at}.score": _score(stage),
            f"{at}.what_if": _what_if(stage),
            f"{at}.compared": _compared(stage),
            f"{at}.findings": _findings(stage),
        }
    after = length.after
    out |= {"length.gap": _gap(after), "length.share": _longer(after, length.before), "length.groups": _groups(balance)}
    out |= {"length.rule": _rule(length), "balance": "" if balance else _no_balance(looked_for)}
    out |= {f"balance.{d.key}": _dimension(d) for d in balance}
    out |= {"tokens.sizes": _sizes(tokens), "tokens.windows": _windows(tokens)}
    return {figure: text for figure, text in out.items() if text}


def percent(share: float) -> str:
    """``18.1 %``, as the page writes it."""
    return f"{100 * share:.1f}\u00a0%"


def _pairs(n: int) -> str:
    return "1 pair" if n == 1 else f"{n:,} pairs"


def _funnel(action: str, t: Totals, funnel: Sequence[Funnel]) -> str:
    if not t.pairs:
        return ""
    would = "would be " if action == "audit" else ""
    most = max(funnel, key=lambda f: f.dropped, default=None)
    if most is None or not most.dropped:
        doubt = f"the {t.flagged:,} flagged ones are what is left to look at" if t.flagged else "none is flagged either"
        return f"No stage drops a pair; {doubt}."
    part = most.dropped / t.dropped
    said = "all of them" if part == 1 else f"{most.dropped:,} of them"
    return f"{_pairs(t.dropped)} {would}dropped, {said} by {most.name}: read its examples first."


def _gates(gates: Sequence[Mapping[str, Any]]) -> str:
    failed = sum(not g.get("ok") for g in gates)
    if not gates:
        return ""
    if not failed:
        return "Every gate holds, so the run ends with exit code 0."
    what = "The gate does not hold" if len(gates) == 1 else f"{failed} of {len(gates)} gates do not hold"
    return f"{what}, so the run ends with exit code 1: mend the set, or change the limit if it asks too much."


def _issues(issues: Sequence[Issue]) -> str:
    if not issues:
        return ""
    first = max(issues, key=lambda i: (i.actions.get("drop", 0), i.rows))
    drops = first.actions.get("drop", 0)
    done = f"{drops:,} dropped" if drops else "none dropped"
    begin = f"Begin with {first.reason} ({_pairs(first.rows)}, {done}): show its examples, and"
    if first.stage == _ALWAYS:
        return f"{begin} mend such rows where the data is made, for no setting makes pairs of them."
    good = "should have stayed" if drops else "are good pairs"
    return f"{begin} where most of them {good}, change a parameter of {first.stage} or leave it out (--skip)."


def _score(stage: StageReport) -> str:
    h = stage.histogram
    if h is None:
        return ""
    if h.limit is None or h.drops is None:
        return "The scores have no limit here: they only rank the pairs."
    over = h.above if h.drops == "above" else h.below
    if not over:
        return f"No pair reaches the limit of {h.limit:,.4g}; the nearest scores {_nearest(h):,.4g}."
    saved = f", of which {stage.beyond_kept:,} stay for another condition" if stage.beyond_kept else ""
    return (
        f"{over:,} of {h.n_before:,} scored pairs lie beyond the limit{saved}: compare the nearest rows on both sides, and move"
        " the limit if they look alike."
    )


def _nearest(h: Histogram) -> float:
    return h.highest if h.drops == "above" else h.lowest


def _what_if(stage: StageReport) -> str:
    others = [w for w in stage.what_if if not w.current]
    now = next((w for w in stage.what_if if w.current), None)
    if now is None or not others:
        return ""
    near = sorted(others, key=lambda w: abs(w.limit - now.limit))[:2]
    most = max(near, key=lambda w: abs(w.change))
    if not now.acted and most.change:
        return f"Nothing is acted upon now; at {most.limit:,.4g} the stage would {stage.verb} {_pairs(most.change)}: read the nearest rows."
    if not most.change:
        return "The neighbouring limits change nothing: this limit is not critical."
    moved = f"{'more' if most.change > 0 else 'fewer'}"
    step = f"At {most.limit:,.4g} the stage would {stage.verb} {abs(most.change):,} {moved} than the {now.acted:,} now"
    if abs(most.change) > 0.5 * max(now.acted, 1):
        return f"{step}: the result hangs on this limit, so read the nearest rows before you trust it."
    return f"{step}: the limit may be moved a little without harm."


def _compared(stage: StageReport) -> str:
    """Of the accuracies of shortcuts: the strongest after cleaning."""
    told = [
        f
        for f in stage.findings
        if f.covers is not None and f.name != _NO_TRAIT and isinstance(f.value, float) and f.low is not None
    ]
    told = [f for f in told if f.when == "kept"] or told
    sure = [f for f in told if f.low is not None and f.low > 0.5]
    if not told:
        return ""
    if not sure:
        return "No trait alone tells which answer is chosen: every interval reaches down to chance."
    best = max(sure, key=lambda f: float(f.value or 0))
    return (
        f"{best.name} alone tells the chosen answer in {percent(float(best.value or 0))} of the pairs: a model can learn that in place"
        " of quality, so balance it, or collect pairs where it points the other way."
    )


def _findings(stage: StageReport) -> str:
    told = [f for f in stage.findings if f.covers is None]
    shown = len({f.name for f in told if f.rows})
    if not told:
        return ""
    if not shown:
        return "These speak of the whole set and name no pair: where a value has an interval, judge it by its bounds."
    return f"{'One names' if shown == 1 else f'{shown} name'} pairs of which it is true: open the rows before you act on the number."


def _side(share: Share) -> str:
    """``long`` or ``short``: what a model learns to write; empty where the interval holds one half."""
    if share.low is None or share.high is None:
        return ""
    return "long" if share.low > 0.5 else "short" if share.high < 0.5 else ""


def _gap(after: Share) -> str:
    if not after.n + after.ties:
        return ""
    return (
        f"Right of 0 the chosen answer is the longer one ({after.hits:,} of {_pairs(after.n + after.ties)} kept), left of it the"
        " rejected one: without a bias both halves are alike."
    )


def _longer(after: Share, before: Share) -> str:
    if after.value is None or after.low is None or after.high is None:
        return "No kept pair has answers of different length, so nothing can be told."
    side = _side(after)
    if not side:
        if after.high - after.low > _WIDE:
            return f"{_pairs(after.n)} are too few to tell: the interval is wide and includes 50\u00a0%."
        return f"The interval includes 50\u00a0%: no length bias shows in {_pairs(after.n)}."
    come = "" if _side(before) else ", and cleaning brought that in: see which stage dropped the other pairs"
    return (
        f"{percent(after.value)} of kept pairs prefer the longer answer (interval excludes 50\u00a0%): a model trained on them learns to"
        f" write {side}{come or '; look at label_shortcut, or balance lengths'}."
    )


def _groups(balance: Sequence[Dimension]) -> str:
    told = [(d, v) for d in balance if d.distinct > 1 for v in d.values[:6] if v.name is not None and v.longer_after.n]
    sure = [
        (d, v) for d, v in told if _side(v.longer_after) and v.longer_after.n >= _FEW and v.after < _ALL * d.n_after
    ]
    if not told:
        return ""
    if not sure:
        return f"In no group of {_FEW} pairs or more does the interval exclude 50\u00a0%, so none calls for another treatment."
    d, v = max(sure, key=lambda found: abs(float(found[1].longer_after.value or 0) - 0.5))
    return (
        f"{v.name} is the most one-sided ({percent(float(v.longer_after.value or 0))} of {_pairs(v.longer_after.n)}, by {d.key}): collect"
        " or leave out pairs there first."
    )


def _rule(length: Length) -> str:
    right, side = length.rule_after, _side(length.after)
    if right.value is None:
        return ""
    if not side:
        return "A rule that goes by length is no better than a coin here, so a model gains nothing by it."
    best = right.value if side == "long" else 1 - right.value
    return (
        f"Choosing the {side}er answer blindly is right in {percent(best)} of kept pairs: a reward model must do better than this to"
        " have learnt more than length."
    )


def _no_balance(looked_for: Sequence[str]) -> str:
    columns = ", ".join(looked_for)
    return (
        "No column tells groups apart"
        + (f" (looked for, with 2 to 1,000 different short texts: {columns})" if columns else "")
        + ", nor does a language: name one with --set domain_balance.column=NAME."
    )


def _dimension(d: Dimension) -> str:
    named = [v for v in d.values if v.name is not None]
    aimed = [v for v in named if v.target and v.after_share is not None]
    if not d.n_after:
        return "No kept pair has a value here."
    if aimed:
        far = max(aimed, key=_off)
        text = f"{far.name} is farthest from its target ({percent(far.after_share or 0)}, wanted {percent(far.target or 0)}): "
        if _off(far) <= _OFF:
            return text + "that is near enough, nothing to do."
        return text + ("cap or weigh it" if (far.after_share or 0) > (far.target or 0) else "collect more of it") + (
            ", with method in domain_balance."
        )  # fmt: skip
    moved = max(named, key=lambda v: abs(v.change or 0))
    top = max(named, key=lambda v: v.after)
    if abs(moved.change or 0) >= _MOVED:
        return (
            f"Cleaning moves {moved.name} most, from {percent(moved.before_share)} to {percent(moved.after_share or 0)}: look at what was"
            " dropped there and whether that is meant."
        )
    if len(named) == 1:
        return f"Every kept pair that has a value here has {top.name}: there is nothing to balance."
    if top.after >= _MOST * d.n_after:
        return f"{top.name} makes up {percent(top.after / d.n_after)} of the kept pairs: means over the set speak of it, so judge the rest apart."
    return "Cleaning leaves the mix as it was: nothing to do unless another mix is wanted (target in domain_balance)."


def _off(value: Value) -> float:
    return abs((value.after_share or 0) - (value.target or 0)) / (value.target or 1)


def _sizes(t: Tokens) -> str:
    if not t.n:
        return ""
    if t.max_length is None:
        return (
            f"Half of the pairs have at most {t.quantiles[0]:,} words and 99\u00a0% at most {t.quantiles[2]:,}; what the trainer cuts is not known"
            " without its tokenizer: give it with --set token_length.tokenizer=NAME."
        )
    if lost := t.filled + t.identical:
        return (
            f"{_pairs(lost)} cannot train in a window of {t.max_length:,} tokens and {t.cut:,} more are cut: raise max_length, or"
            " shorten the prompts."
        )
    if t.cut:
        much = " raise max_length" if (t.cut_share or 0) > _CUT else " few enough to leave it so"
        return f"Every pair can train; {_pairs(t.cut)} ({percent(t.cut_share or 0)}) are cut at {t.max_length:,} tokens:{much}."
    return f"Every pair fits whole: the longest has {t.quantiles[3]:,} of {t.max_length:,} tokens, so the window costs nothing."


def _windows(t: Tokens) -> str:
    if not t.windows:
        return ""
    fits = [w for w in t.windows if w.lost <= _LOST and w.cut <= _CUT]
    if not fits:
        return "Each of these windows loses or cuts many pairs: shorten the texts or train with a larger one."
    w = fits[0]
    return f"{w.max_length:,} tokens is the smallest of these windows that loses and cuts few pairs; a larger one costs memory."
