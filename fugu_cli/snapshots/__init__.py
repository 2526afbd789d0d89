"""The files of the working tree: listed, kept as snapshots, compared and put back."""
