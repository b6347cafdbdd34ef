"""The figures of papers/03 as pictures: Figs. 2 to 5 of the paper, coverage, and error against the store's size."""

from __future__ import annotations

import pandas as pd
from infra.research.figures.drawing import BLUE, INK, ORANGE, SKY, Series, canvas, curve, finish, save
from infra.research.figures.history import coverage, customers, measures
from infra.research.figures.running import Figure, Settings, measured

PAPER_SEEDS, SIZE_SEEDS, COVERAGE_SEEDS = 10, 10, 30
RANGES = 2_000
SAID = (
    f"AVG(C_ACCTBAL), leaves of {measures.LEAF_TICKS} tuples, D = {measures.CAPACITY:,}, "
    f"f_max = {measures.MAX_FRACTION:.0%}. Paper: exp(−age/D), leaf samples scaled by 1/f, shares of cut leaves. "
    "Tidegate: D0/age in bands, calibrated to the exact leaves, samples of cut leaves. "
)


def _paper_rows(settings: Settings) -> tuple[pd.DataFrame, int]:
    customers.make()
    seeds = min(settings.seeds, PAPER_SEEDS)
    cases = [(seed, step) for seed in range(seeds) for step in range(len(measures.LANDMARKS))]
    return measured(measures.landmarks, cases, ("seed", "step"), settings.processes), seeds


def _draw_paper(settings: Settings, kind: str, name: str, figures: str, titles: tuple[str, str]) -> None:
    rows, seeds = _paper_rows(settings)
    canvas_, panels = canvas(2)
    drawn = []
    for axes, scope, title in zip(panels, ("landmark", "snapshot"), titles, strict=True):
        for who, label, color in (("paper", "Zhang et al.", ORANGE), ("ours", "Tidegate", INK)):
            series = Series(f"{who}_{kind}_{scope}", label, color, "o" if who == "paper" else "D")
            drawn.append(curve(axes, rows, "ts", series, 100.0))
        finish(axes, title, "start of the scope (tick)", "relative error (%)", "upper left")
        axes.set_xticks([0, 250_000, 500_000, 750_000, 1_000_000], ["0", "250k", "500k", "750k", "1M"])
    caption = (
        f"{figures} of Zhang et al. {SAID}Means of {seeds} runs and the middle half of them, seeds (0 to {seeds - 1}). "
        f"Generator: {customers.GENERATOR}."
    )
    save(canvas_, settings.out, name, caption, {"": pd.concat(drawn), ".instances": rows})


def _draw_simple(settings: Settings) -> None:
    _draw_paper(settings, "simple", "history_simple", "Figs. 2 and 3", ("[ts, newest)", "[ts, ts + 5000)"))


def _draw_complex(settings: Settings) -> None:
    titles = ("One nation, [ts, newest)", "One nation, [ts, ts + 5000)")
    _draw_paper(settings, "complex", "history_complex", "Figs. 4 and 5", titles)


def _draw_coverage(settings: Settings) -> None:
    seeds = min(settings.seeds, COVERAGE_SEEDS)
    # Fewer ranges for a quick look.
    asked = RANGES if seeds == COVERAGE_SEEDS else 100
    cases = [(kind, seed, asked) for kind in range(len(coverage.KINDS)) for seed in range(seeds)]
    rows = measured(coverage.coverage, cases, ("kind", "seed", "asked"), settings.processes).fillna(0)
    parts = [f"age{i}" for i in range(len(coverage.AGES))]
    parts += [f"selectivity{i}" for i in range(len(coverage.SELECTIVITIES))]
    added = rows.groupby("kind")[[f"{what}_{p}" for p in [*parts, *coverage.AGGREGATES] for what in ("hits", "trials")]]
    sums = added.sum()
    figure, (left, right) = canvas(2)
    colors = (INK, BLUE, ORANGE, SKY)
    shares = pd.DataFrame({p: sums[f"hits_{p}"] / sums[f"trials_{p}"] for p in [*parts, *coverage.AGGREGATES]})
    ages = (left, parts[: len(coverage.AGES)], [a.replace(" ", "\n") for a in coverage.AGES], "By age")
    picks = (right, parts[len(coverage.AGES) :], [f"{s:.0%}" for s in coverage.SELECTIVITIES], "By selectivity")
    for axes, columns, labels, title in (ages, picks):
        for kind, color in zip(shares.index, colors, strict=True):
            at = [i + 0.12 * (kind - 1.5) for i in range(len(columns))]
            axes.plot(at, 100 * shares.loc[kind, columns], "o", color=color, label=coverage.KINDS[int(kind)])
        axes.axhspan(94, 96, color=SKY, alpha=0.2, lw=0)
        finish(axes, title, "", "intervals that hold (%)", "lower left")
        axes.set_xticks(range(len(columns)), labels)
        axes.set_ylim(85, 100)
    pooled = sum(sums[f"hits_{a}"].sum() for a in coverage.AGGREGATES) / sum(
        sums[f"trials_{a}"].sum() for a in coverage.AGGREGATES
    )
    caption = (
        f"Coverage of 95 % intervals, COUNT, SUM and AVG, n_eff ≥ 10: {pooled:.1%} pooled. {coverage.PERIODS} periods "
        f"of {coverage.PERIOD_TUPLES} tuples on average, D = {coverage.SPEC.capacity_tuples:,}, law D0/age; {asked} "
        f"ranges of 1 to 40 % of the past a store; {seeds} seeds (0 to {seeds - 1}). "
        f"Shaded: 94 to 96 %. Generator: coverage.py "
        "beside this figure's code."
    )
    save(figure, settings.out, "history_coverage", caption, {"": shares.reset_index(), ".instances": rows})


def _draw_sizes(settings: Settings) -> None:
    customers.make()
    seeds = min(settings.seeds, SIZE_SEEDS)
    cases = [(seed, size) for seed in range(seeds) for size in range(len(measures.CAPACITIES))]
    rows = measured(measures.store_sizes, cases, ("seed", "size"), settings.processes)
    figure, panels = canvas(2)
    drawn = []
    for axes, part, title in zip(panels, ("recent", "oldest"), ("Recent half", "Oldest tenth"), strict=True):
        for law, label, color in (("exponential", "exp(−age/D)", ORANGE), ("inverse_age", "D0/age", INK)):
            if rows[f"{law}_{part}"].notna().any():
                drawn.append(curve(axes, rows, "capacity", Series(f"{law}_{part}", label, color), 100.0))
        finish(axes, title, "capacity D (tuples)", "p95 of the relative error (%)", "upper right")
        axes.set_xscale("log")
    silent = rows.groupby("capacity")["exponential_oldest_unanswered"].mean()
    told = ", ".join(f"{share:.0%} at {int(capacity):,}" for capacity, share in silent.items())
    caption = (
        f"Error against the store's size, both laws, Tidegate's estimates. AVG(C_ACCTBAL) of one nation (4 %) over "
        f"windows of {measures.WINDOW_SHARE:.0%} of the history, {measures.WINDOWS} a run, those answered; the "
        f"exponential law has no estimate for the oldest tenth in {told}. "
        f"{seeds} seeds (0 to {seeds - 1}). Generator: {customers.GENERATOR}."
    )
    save(figure, settings.out, "history_store_size", caption, {"": pd.concat(drawn), ".instances": rows})


FIGURES = (
    Figure("history_simple", _draw_simple),
    Figure("history_complex", _draw_complex),
    Figure("history_coverage", _draw_coverage),
    Figure("history_store_size", _draw_sizes),
)
