"""Charts of results: one figure model, drawn as Vega-Lite or in a terminal."""
