"""Statistics of labels: what a pair shows of its answers, who says which is better, and how likely the label is wrong."""
