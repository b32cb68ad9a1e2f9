package batch

// children are what this binary does when a test executes it again, by the
// value of BATCH_TEST_CHILD.
var children = map[string]func(){}
