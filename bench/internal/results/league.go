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

// ReadZoo reads the JSON that the zoo writes: what each client got at each server of a group.
func ReadZoo(file, group string) ([]Run, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var games []struct {
		Server, Group, Client string
		Score                 float64
	}
	if err := json.Unmarshal(text, &games); err != nil {
		return nil, err
	}
	var runs []Run
	for _, g := range games {
		if g.Group == group {
			runs = append(runs, Run{g.Server, g.Client, g.Score})
		}
	}
	return runs, nil
}
