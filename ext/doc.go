// Package ext has no code. The packages below it are for authors of stores and exporters: of
// what keeps limits, such as a database, and lets gates of several processes share what they
// learn. The module sluiceredis is made of them. Programs that only use limits do not import
// them.
//
//	kind      the rule of each kind of limit, pure
//	peers     what gates tell each other about a learned limit, and how it is divided
//
// They promise less than the rest of the module: a release may change or remove what is in
// them, and its notes say so. A module that imports one requires the version that it was
// tested with.
package ext
