"""Faults that are planted to see if the property suite finds them: `benchmarks.mutation` puts them on trial."""
