// Package learned has the format of the file in which sluice proxy keeps what it has learned.
package learned

import (
	"encoding/json"
	"errors"
)

// File is the name of the file.
const File = "learned.json"

type content struct {
	Version int               `json:"version"`
	Gates   map[string][]byte `json:"gates"`
}

const version = 1

// Format returns a file with the snapshots of gates, by their names.
func Format(gates map[string][]byte) ([]byte, error) {
	return json.Marshal(content{version, gates})
}

// Parse returns the snapshots of gates in a file, by their names.
func Parse(text []byte) (map[string][]byte, error) {
	var c content
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, err
	}
	if c.Version != version {
		return nil, errors.New("it is of another version")
	}
	return c.Gates, nil
}
