package errs

// Made panics if a value was not made by its constructor, such as a leaky.Bucket by leaky.New.
func Made(made bool, what, by string) {
	if !made {
		notMade(what, by)
	}
}

// notMade is not part of Made, which is inlined where calls are counted in nanoseconds.
//
//go:noinline
func notMade(what, by string) {
	panic(prefix + "the zero " + what + " cannot be used: " + by + " makes one")
}
