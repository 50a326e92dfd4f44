"""Draw answers as SVG: vector pictures with axes, units and labels, for a ticket or a report."""
