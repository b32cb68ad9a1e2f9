package main

import (
	"fmt"
	"go/token"
	"maps"
	"slices"
	"strings"
)

// chooser is the function of a program that does one operation or the contrary.
var chooser = map[token.Token]string{
	token.ADD: "mutantAdd", token.SUB: "mutantSub", token.MUL: "mutantMul", token.QUO: "mutantQuo",
	token.ADD_ASSIGN: "mutantAdd", token.SUB_ASSIGN: "mutantSub", token.MUL_ASSIGN: "mutantMul", token.QUO_ASSIGN: "mutantQuo",
	token.LAND: "mutantAnd", token.LOR: "mutantOr",
}

// chooserName is the file that is added to the package.
const chooserName = "mutants_of_this_package.go"

// chooser returns the text of that file.
func (p *program) chooser() string {
	var imports, aliases strings.Builder
	for _, name := range slices.Sorted(maps.Keys(p.foreign)) {
		o := p.foreign[name]
		fmt.Fprintf(&imports, "import %s_%s %q\n", name, o.Pkg().Name(), o.Pkg().Path())
		fmt.Fprintf(&aliases, "type %s = %s_%s.%s\n", name, name, o.Pkg().Name(), o.Name())
	}
	return fmt.Sprintf(chooserText, p.pkg.Name(), &imports, &aliases)
}

// chooserText declares what the program asks.
const chooserText = `package %s

import "os"
import "strconv"
%s
%s
var mutantOn, _ = strconv.Atoi(os.Getenv("MUTANT"))

type mutantNumber interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~float32 | ~float64
}

func mutantLarger[T mutantNumber](id int, larger, x T) T {
	if mutantOn == id {
		return larger
	}
	return x
}

func mutantAdd[T mutantNumber](id int, x, y T) T {
	if mutantOn == id {
		return x - y
	}
	return x + y
}

func mutantSub[T mutantNumber](id int, x, y T) T {
	if mutantOn == id {
		return x + y
	}
	return x - y
}

func mutantMul[T mutantNumber](id int, x, y T) T {
	if mutantOn == id {
		return x / y
	}
	return x * y
}

func mutantQuo[T mutantNumber](id int, x, y T) T {
	if mutantOn == id {
		return x * y
	}
	return x / y
}

func mutantAnd(id int, x bool, y func() bool) bool {
	if mutantOn == id {
		return x || y()
	}
	return x && y()
}

func mutantOr(id int, x bool, y func() bool) bool {
	if mutantOn == id {
		return x && y()
	}
	return x || y()
}

func mutantNot(id int, x bool) bool { return x != (mutantOn == id) }
`
