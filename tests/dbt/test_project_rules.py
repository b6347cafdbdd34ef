"""The rules of dbt-project-evaluator, read off the manifest: the package itself comes from dbt's hub alone.

README.md of the project lists them, with the exceptions and their reasons. Every rule returns the offenders, so that a
rule on an empty set passes only if ``test_the_rules_have_something_to_look_at`` does too.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pytest
from dbt.artifacts.resources.types import NodeType
from dbt.contracts.graph.manifest import Manifest
from tests.dbt.sensors import sensors

LAYERS = ("staging", "intermediate", "marts")
_MOST_CHAINED_VIEWS = 5
_MOST_JOINS = 6
_MOST_LEAF_CHILDREN = 3


@dataclass(frozen=True)
class Graph:
    """Models and sources of a manifest, and who reads whom."""

    manifest: Manifest

    @cached_property
    def models(self) -> dict[str, Any]:
        return {key: node for key, node in self.manifest.nodes.items() if node.resource_type == NodeType.Model}

    def layer(self, key: str) -> str:
        return "source" if key in self.manifest.sources else self.models[key].fqn[1]

    def parents(self, key: str) -> list[str]:
        return self.models[key].depends_on.nodes if key in self.models else []

    @cached_property
    def children(self) -> dict[str, list[str]]:
        everyone = [*self.models, *self.manifest.sources]
        return {key: [child for child in self.models if key in self.parents(child)] for key in everyone}

    def ancestors(self, key: str) -> set[str]:
        return {a for parent in self.parents(key) for a in (parent, *self.ancestors(parent))}

    def in_layer(self, layer: str) -> list[str]:
        return [key for key in self.models if self.layer(key) == layer]

    def chained_views(self, key: str) -> int:
        if key not in self.models or self.models[key].config.materialized != "view":
            return 0
        return 1 + max((self.chained_views(parent) for parent in self.parents(key)), default=0)

    @cached_property
    def graded(self) -> set[str]:
        """Models with a test of their grain."""
        tests = [n for n in self.manifest.nodes.values() if n.resource_type == NodeType.Test]
        return {parent for test in tests if test.name.startswith("grain_") for parent in test.depends_on.nodes}


def staging_that_does_not_read_exactly_one_source(g: Graph) -> list[str]:
    """Samples look up, in their staging model, the leaf that says which of their rows still count."""
    leaves = "model.tidegate.stg_history_leaves"
    read = {
        k: [p for p in g.parents(k) if "stg_history_samples_" not in k or p != leaves] for k in g.in_layer("staging")
    }
    return [k for k, parents in read.items() if [g.layer(p) for p in parents] != ["source"]]


def sources_without_exactly_one_staging_model(g: Graph) -> list[str]:
    return [k for k in g.manifest.sources if [g.layer(c) for c in g.children[k]] != ["staging"]]


def models_beyond_staging_that_read_a_source(g: Graph) -> list[str]:
    beyond = [*g.in_layer("intermediate"), *g.in_layer("marts")]
    return [k for k in beyond if any(g.layer(p) == "source" for p in g.parents(k))]


def models_that_read_a_later_layer(g: Graph) -> list[str]:
    order = ("source", *LAYERS)
    return [k for k in g.models if any(order.index(g.layer(p)) > order.index(g.layer(k)) for p in g.parents(k))]


def tables_declared_as_two_sources(g: Graph) -> list[str]:
    names = Counter((s.schema, s.identifier) for s in g.manifest.sources.values())
    return [name for (_, name), count in names.items() if count > 1]


def models_without_parents(g: Graph) -> list[str]:
    return [k for k in g.models if not g.parents(k)]


def models_that_name_a_table_by_hand(g: Graph) -> list[str]:
    by_hand = re.compile(r"\b(?:from|join)\s+[`\"\w]+\.[`\"\w]+", flags=re.IGNORECASE)
    return [k for k, node in g.models.items() if by_hand.search(node.raw_code)]


def models_that_fan_out(g: Graph) -> list[str]:
    leaves = {k for k in g.models if not g.children[k]}
    return [k for k in g.models if len(leaves.intersection(g.children[k])) > _MOST_LEAF_CHILDREN]


def concepts_that_are_joined_again(g: Graph) -> list[str]:
    """A model reads a parent and also that parent's parent, with no other reader of the one in between."""
    return [
        between
        for key in g.models
        for between in g.parents(key)
        if g.children[between] == [key] and set(g.parents(between)) & set(g.parents(key))
    ]


def models_with_too_many_joins(g: Graph) -> list[str]:
    return [k for k, n in g.models.items() if len(re.findall(r"\bjoin\b", n.raw_code)) > _MOST_JOINS]


def long_chains_of_views(g: Graph) -> list[str]:
    return [k for k in g.models if g.chained_views(k) > _MOST_CHAINED_VIEWS]


def names_that_do_not_say_their_layer(g: Graph) -> list[str]:
    prefixes = {"staging": "stg_", "intermediate": "int_"}
    wrong = [k for k in g.models if not g.models[k].name.startswith(prefixes.get(g.layer(k), ""))]
    return wrong + [k for k in g.in_layer("marts") if g.models[k].name.startswith(tuple(prefixes.values()))]


def models_outside_a_layers_folder(g: Graph) -> list[str]:
    return [k for k in g.models if g.layer(k) not in LAYERS or g.models[k].path.count("/") != 1]


def declarations_away_from_their_model(g: Graph) -> list[str]:
    return [
        k
        for k, n in g.models.items()
        if n.patch_path.split("://")[1] != re.sub(r"\.sql$", ".yml", n.original_file_path)
    ]


def models_without_a_test_of_their_grain(g: Graph) -> list[str]:
    """Excepted: rows that are those of tested relations, and lists in which equal rows are two facts (a record refused
    twice)."""
    excepted = {"stg_quarantine", "stg_quality_results"}
    excepted |= {"answers_corrected", *(f"answers_{query.id}" for query in sensors().queries)}
    unions = {k for k in g.in_layer("intermediate") if all(p in g.graded | unions_of_answers(g) for p in g.parents(k))}
    return [k for k in g.models if k not in g.graded | unions and g.models[k].name not in excepted]


def unions_of_answers(g: Graph) -> set[str]:
    return {k for k in g.in_layer("staging") if g.models[k].name.startswith("stg_answers_")}


def undocumented(g: Graph) -> list[str]:
    described = {**g.models, **g.manifest.sources}
    columns = [f"{k}.{c.name}" for k, node in described.items() for c in node.columns.values() if not c.description]
    return columns + [k for k, node in described.items() if not node.description or not node.columns]


def exposures_of_anything_but_tested_tables(g: Graph) -> list[str]:
    marts = {k for k in g.in_layer("marts") if g.models[k].config.materialized == "table"}
    return [e.name for e in g.manifest.exposures.values() if not set(e.depends_on.nodes) <= marts & g.graded]


def exposures_without_owner_or_description(g: Graph) -> list[str]:
    return [e.name for e in g.manifest.exposures.values() if not (e.owner.name and e.description and e.label)]


def built_marts_without_contract(g: Graph) -> list[str]:
    built = [k for k in g.in_layer("marts") if g.models[k].config.materialized == "table"]
    return [k for k in built if not g.models[k].contract.enforced]


def sources_of_every_interval_without_freshness(g: Graph) -> list[str]:
    regular = [s for s in g.manifest.sources.values() if s.name.startswith("events_") or s.name == "run_metrics"]
    return [s.name for s in regular if not (s.freshness and s.freshness.warn_after and s.loaded_at_field)]


RULES = [
    staging_that_does_not_read_exactly_one_source,
    sources_without_exactly_one_staging_model,
    models_beyond_staging_that_read_a_source,
    models_that_read_a_later_layer,
    tables_declared_as_two_sources,
    models_without_parents,
    models_that_name_a_table_by_hand,
    models_that_fan_out,
    concepts_that_are_joined_again,
    models_with_too_many_joins,
    long_chains_of_views,
    names_that_do_not_say_their_layer,
    models_outside_a_layers_folder,
    declarations_away_from_their_model,
    models_without_a_test_of_their_grain,
    undocumented,
    exposures_of_anything_but_tested_tables,
    exposures_without_owner_or_description,
    built_marts_without_contract,
    sources_of_every_interval_without_freshness,
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_nothing_breaks_the_rule(manifest: Manifest, rule: Any) -> None:
    assert rule(Graph(manifest)) == []


def test_the_rules_have_something_to_look_at(manifest: Manifest) -> None:
    graph = Graph(manifest)
    assert all(graph.in_layer(layer) for layer in LAYERS)
    assert graph.manifest.sources and graph.manifest.exposures and graph.graded
    assert graph.chained_views("model.tidegate.int_history_leaf_columns") == 2
