"""Plotly figures as JSON values. A colour is the name of a CSS property of the page, such as "--memory"."""
