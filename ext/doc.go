// Package ext has no code. Package peers below it is for authors of stores, such as a database that
// lets gates of several processes share what they have learned. The module sluiceredis uses it.
//
// It promises less than the rest of the module: a release may change or remove its contents, and
// its notes say so. A module that imports it requires the version that it was tested with.
package ext
