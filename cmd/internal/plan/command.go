// Package plan is the command sluice plan: it says when a job that calls a rate-limited service will
// end, and what limits it, before the first call is made.
//
//	sluice plan -items 50000 -rate 5/s -by 06:00
//	sluice plan -items 8000 -cost tokens=1500 -limit 500/m -limit '200000/m unit=tokens' -takes 4s -jobs 16
package plan

import (
	"os"

	"github.com/sluice-go/sluice/cmd/internal/cli"
)

// Command is sluice plan.
var Command = &cli.Command{
	Name:  "plan",
	Short: "says when a job will end, which limit binds, and whether it ends in time, without making a call",
	Usage: []string{"-items N [flags]"},
	Examples: []cli.Example{
		{What: "whether 50,000 calls are done by six", Line: "sluice plan -items 50000 -rate 5/s -by 06:00"},
		{What: "requests and tokens, both limited", Line: "sluice plan -items 8000 -limit 500/m -cost tokens=1500 -limit '200000/m unit=tokens'"},
		{What: "a quota of a day", Line: "sluice plan -items 12000 -rate 10/s -limit '5000/day type=calendar zone=Europe/Berlin'"},
		{What: "at the pace that a proxy has found", Line: "sluice plan -items 1000 -learned state/learned.json -gate api.github.com"},
	},
	Flags: func() *cli.Flags { return newFlags(new(options)) },
	Run:   run,
	Sections: []cli.Section{
		{
			Title: "Limits",
			Text:  "A -limit is a rate, such as 500/m, and words that say more about it:",
			Terms: []cli.Term{
				{Name: "unit=UNIT", Text: "the unit: calls, the default, or one of -cost"},
				{Name: "type=bucket", Text: "it refills evenly; the default"},
				{Name: "burst=N", Text: "how much a full bucket holds; by default the number of the rate, 500 of 500/m"},
				{Name: "type=fixed", Text: "windows that follow one another; the first begins with the first call"},
				{Name: "type=sliding", Text: "no more than that in any window of that length"},
				{Name: "type=calendar", Text: "windows that begin with each m, h, day, week or month"},
				{Name: "zone=ZONE", Text: "the time zone of a calendar, such as Europe/Berlin; by default UTC"},
			},
		},
		{
			Title: "Expectations",
			Text: `
The plan begins now, with limits of which nothing has been used. Each call starts as soon as all limits
allow it. Retries and calls of others are not included.

The plan names the limit that alone would hold the job up for longest, and the end without that limit.
`,
		},
	},
	Exits: []cli.Exit{
		{Status: cli.ExitOK, Text: "the plan is printed, and the job ends by -by"},
		{Status: cli.ExitFailed, Text: "it ends later, never, or it is not known when"},
		{Status: cli.ExitUsage, Text: "there is no plan"},
	},
}

// run prints the plan.
func run(args []string, _, stdout, _ *os.File) (status int, err error) {
	o, err := parseOptions(args[2:])
	if err != nil {
		return 0, err
	}
	p, err := newPlan(o)
	if err != nil {
		return 0, err
	}
	return p.print(stdout)
}
