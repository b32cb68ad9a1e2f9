// Package axe holds axe-core 4.14.1, a checker of the accessibility of pages, unchanged as
// its npm package has it. It is not part of Sluice: its license is the Mozilla Public
// License 2.0, in the file LICENSE next to it. It is used in tests only.
package axe

import _ "embed"

// Source is the JavaScript that defines the object axe.
//
//go:embed axe.min.js
var Source string
