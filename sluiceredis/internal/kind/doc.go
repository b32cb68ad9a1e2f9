// Package kind has the algorithms of leaky buckets and sliding windows, which are pure functions. Its
// other files are copies of those of the same name in internal/kind of the core: change those, and
// then run
//
//	go test ./internal/testkit -run TestCopies -copy
package kind
