package results

import (
	"encoding/json"
	"os"
)

// A Run is what one strategy got in one world of the goodput league, with one seed.
type Run struct {
	World    string  `json:"world"`
	Strategy string  `json:"strategy"`
	Score    float64 `json:"score"`
}

// ReadLeague reads the JSON that the league writes.
func ReadLeague(file string) ([]Run, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var runs []Run
	return runs, json.Unmarshal(text, &runs)
}
