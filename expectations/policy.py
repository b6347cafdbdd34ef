"""What a failed expectation means: the one place to change it.

* ``critical``: the stage fails, and with it the Airflow task. Kept for what makes the tables wrong or the machine
  unsafe: rows lost, a stage's memory above its budget, an answer that contradicts itself. Going on would spread the
  damage.
* ``warning``: shown in the report, the run goes on. A broken promise of accuracy is one by default: it must be seen,
  but it tells of windows that are long over. Halting would not mend them; it would stop the very intervals from which
  the next, better slack is learned. A missed period is one warning, in the interval that judges it. Set
  ``promise_kept`` to ``critical`` where nobody may read a doubtful answer.
* ``info``: worth knowing, nothing to do: single windows that missed while the promise over the period holds, how an
  open period stands.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType
from typing import Literal

Severity = Literal["critical", "warning", "info"]

SEVERITIES: Mapping[str, Severity] = MappingProxyType(
    {
        # arrivals: what came in. A missing file weighs what the stream's ``missing_file`` declares.
        "file_missing_error": "critical",
        "file_missing_warning": "warning",
        "file_empty": "info",
        "file_as_read": "warning",
        "event_keys_known": "critical",
        "event_ids_unique": "critical",
        "event_arrived_in_interval": "critical",
        "quarantine_share": "warning",
        "column_declared": "warning",
        "column_has_values": "warning",
        # completeness: every record accounted for, every due window answered.
        "rows_accounted": "critical",
        "partitions_written": "critical",
        "stages_measured": "warning",
        "windows_answered": "critical",
        "windows_in_turn": "critical",
        # answers: no row contradicts itself.
        "answer_values_known": "critical",
        "answer_grain_unique": "critical",
        "answer_emitted_in_interval": "critical",
        "answer_emitted_at_slack": "critical",
        "answer_on_tick": "critical",
        "answer_coverage_in_range": "critical",
        "answer_coverage_is_product": "critical",
        "answer_width_within_range": "critical",
        "answer_slack_within_horizon": "critical",
        "answer_support_level_known": "warning",
        "answer_rank_within_limit": "critical",
        # accuracy: the truth and the distance from it.
        "truth_values_known": "critical",
        "truth_grain_unique": "critical",
        "truth_window_final": "critical",
        "accuracy_value_in_range": "critical",
        "accuracy_kept_agrees": "critical",
        "window_hit_rate": "info",
        "window_relative_error": "info",
        # promises: ERROR and ACCURACY, period by period.
        "promise_grain_unique": "critical",
        "promise_kept_agrees": "critical",
        "promise_kept": "warning",
        "promise_fail": "critical",
        "promise_met": "warning",
        "promise_so_far": "info",
        "slack_covers_oracle": "info",
        # plans: window plans and slacks that took effect.
        "plan_values_known": "critical",
        "plan_grain_unique": "critical",
        "plan_width_above_least": "critical",
        "plan_width_below_most": "critical",
        "plan_within_memory_budget": "critical",
        "plan_held_within_memory_budget": "critical",
        "plan_feasible": "warning",
        "plan_slack_within_horizon": "critical",
        "plan_oracle_within_horizon": "critical",
        "plan_coverage_in_range": "critical",
        "plan_expects_target": "info",
        "plan_wait_fits": "warning",
        # history: leaves and their samples.
        "history_values_known": "critical",
        "history_grain_unique": "critical",
        "history_sampled_within_tuples": "critical",
        "history_fraction_in_range": "critical",
        "history_aggregates_sound": "critical",
        "history_samples_in_leaves": "warning",
        "history_samples_by_priority": "critical",
        "history_weights_sound": "critical",
        "history_interval_coverage": "warning",
        # run metrics: measured memory.
        "metrics_values_known": "critical",
        "metrics_grain_unique": "critical",
        "metrics_rows_computed": "info",
        "state_within_memory_budget": "critical",
        "process_within_budget": "critical",
        "server_within_budget": "warning",
    }
)


@dataclass(frozen=True)
class Policy:
    """Thresholds and severities.

    ``trailing``: the time before an interval's end over which K is compared with its oracle. ``quarantine_share``: the
    largest share of a stream's records that may be refused without a warning. ``history_coverage``: the share of
    intervals about the past that hold the truth, which they must but for what chance allows: fewer than the bound would
    hold it with a probability of at most ``history_chance`` (binomial, for the questions share no tuple).
    ``failures_listed``: how many failed rows of one expectation, table and query are listed one by one.
    """

    trailing: timedelta = timedelta(hours=24)
    quarantine_share: float = 0.01
    history_coverage: float = 0.95
    history_chance: float = 0.001
    failures_listed: int = 20
    severities: Mapping[str, Severity] = field(default_factory=lambda: SEVERITIES)

    def severity(self, rule: str) -> Severity:
        """Severity of a rule; KeyError for an unknown one."""
        return self.severities[rule]


DEFAULT = Policy()
