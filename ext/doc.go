// Package ext has no code. The packages below it are for authors of stores, such as a database that
// lets gates of several processes share what they have learned, and of programs that show gates
// elsewhere. The modules sluiceredis and observe/live use them.
//
//	peers     the reports of gates to each other about a learned limit, and how it is divided
//	wording   how times and numbers are written, and texts of others made fit to be shown
//
// They promise less than the rest of the module: a release may change or remove their contents, and
// its notes say so. A module that imports one requires the version that it was tested with.
package ext
