"""Many methods on one data set: linear rivals, the tests that tell them apart, the report."""
