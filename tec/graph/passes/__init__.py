"""Graph passes, one a file: each takes a Graph and gives a Graph; `tec.graph.optimize` runs them in order."""
