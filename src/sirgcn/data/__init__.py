"""Graphs and tasks: what a model is trained and measured on."""

from sirgcn.data.synthetic import dictionary_lookup, hetero_edge_count

__all__ = ["dictionary_lookup", "hetero_edge_count"]
