package main

import (
	"fmt"
	"hash/fnv"
	"iter"
	"math/rand/v2"
	"strings"
	"time"
)

// The completions are typical of a task such as "summarize this page": prompts of 500 to
// 1,100 tokens, completions of 100 to 500.
const (
	maxTokens       = 600 // what each request reserves for its completion
	tokensPerSecond = 50  // how fast the server streams, so that it takes 2 to 10 s
	wordsPerEvent   = 15
)

// words is what prompts and completions consist of. By the tokenizer of this program a
// word is four thirds of a token, as it is in English on average.
var words = strings.Fields("in the third quarter sales of the northern region grew by more than a tenth " +
	"while the cost of delivery did not change because most customers were willing to wait a " +
	"day longer and the new warehouse could handle large orders with the same number of people")

// prompts yields the first n prompts. They are always the same.
func prompts(n int) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range n {
			rng := rand.New(rand.NewPCG(uint64(i), 500))
			text := fmt.Sprintf("Summarize report %d: %s", i+1, prose(rng, 375+rng.IntN(450)))
			if !yield(text) {
				return
			}
		}
	}
}

// prose returns a text of so many words.
func prose(rng *rand.Rand, n int) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(words[rng.IntN(len(words))])
	}
	return b.String()
}

// tokensIn counts the tokens of a text.
func tokensIn(text string) int64 { return int64(len(strings.Fields(text))) * 4 / 3 }

// completion returns what the model says to a prompt: always the same, and of a length
// that cannot be known in advance.
func completion(prompt string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(prompt))
	rng := rand.New(rand.NewPCG(h.Sum64(), 1))
	return prose(rng, 75+rng.IntN(301))
}

// streams returns the time it takes to stream a number of tokens.
func streams(tokens int64) time.Duration {
	return time.Duration(tokens) * time.Second / tokensPerSecond
}

// chunks cuts a completion into what an event of the stream has.
func chunks(text string) []string {
	var all []string
	for rest := strings.Fields(text); len(rest) > 0; {
		n := min(wordsPerEvent, len(rest))
		chunk := strings.Join(rest[:n], " ")
		if rest = rest[n:]; len(rest) > 0 {
			chunk += " "
		}
		all = append(all, chunk)
	}
	return all
}
