"""The audit report: numbers first (``summary``), then one self-contained page (``render``)."""
