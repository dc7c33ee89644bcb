"""From ``results.json`` to tables, figures and one HTML page. Never imports torch."""
