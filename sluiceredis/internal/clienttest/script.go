package clienttest

import (
	"crypto/sha1"
	"encoding/hex"

	"github.com/sluice-go/sluice/sluiceredis"
)

// Script returns a script such as stores make.
func Script(name, text string) *sluiceredis.Script {
	sum := sha1.Sum([]byte(text))
	return &sluiceredis.Script{Name: name, Text: text, Digest: hex.EncodeToString(sum[:])}
}
