package crawl

import "github.com/sluice-go/sluice/cmd/internal/cli"

// name begins each line for people.
const name = cli.Program + " crawl"

// Command is sluice crawl.
var Command = &cli.Command{
	Name:  "crawl",
	Short: "fetches web pages and the pages that they link to, politely",
	Usage: []string{"[flags] [address ...]"},
	Examples: []cli.Example{
		{What: "a built-in site of ten hosts, on loopback", Line: "sluice crawl"},
		{What: "50 pages of a site, into the folder crawl", Line: "sluice crawl -pages 50 https://example.com/"},
		{What: "more of it, or after an interruption", Line: "sluice crawl -pages 500 -resume https://example.com/"},
	},
	Flags: func() *cli.Flags { return newFlags(new(options)) },
	Run:   run,
	Sections: []cli.Section{
		{
			Title: "Folder",
			Text:  "Without an address it crawls a built-in site. An address may be that of a sitemap. The folder of -dir then has",
			Terms: []cli.Term{
				{Name: "pages.jsonl", Text: "a line of JSON for each page: status, title, digest, links; of two lines for an address the later one counts"},
				{Name: "pages.before.jsonl", Text: "with -refresh, those of the crawl before"},
				{Name: "summary.json", Text: "the totals, when the crawl ends"},
				{Name: "frontier", Text: "what is known and what is left, for -resume"},
				{Name: "bodies", Text: "with -bodies, the pages"},
			},
		},
		{
			Title: "Which pages",
			Text: `
Links are followed within the sites of the addresses: http and https, and www. or not, are one site.
Where such an address redirects, the crawl begins, too. -domains adds domains, -span all hosts. At
most 10 redirects are followed in a row.

The rules for crawlers are obeyed: robots.txt, robots in meta elements, X-Robots-Tag, and
rel=nofollow. If a page equals an earlier one of its host, its links are not followed.
`,
		},
		{
			Title: "Speed and failures",
			Text: `
Each host gets a request every -delay, or less often if its robots.txt has a Crawl-delay or it
refuses requests. A page that fails, or is refused, goes behind the other pages of its host, at most
twice and three times. A host that fails ten times in a row is set aside; it is tried again after
2s, 4s and so on, and given up after six of those.
`,
		},
		{
			Title: "Again",
			Text: `
-refresh crawls again what the folder has. Each page is asked for at most once, with the ETag and
Last-Modified that it had; a page that its sitemap says was not changed since it was read is not asked
for. The field refresh of a line is new, changed, unchanged or gone, which is 4xx; pages that are no
longer linked to are asked for, too. -retry-failed goes on with a crawl and asks again for the pages
that failed; their new lines have the field again.
`,
		},
		{
			Title: "Signals and the end",
			Text: `
A crawl can be interrupted or killed at any time. -resume continues it with the flags that are given
then, and fetches no page twice that has a line. The first Ctrl-C lets requests in flight finish,
the second cancels them, the third ends the program. SIGTERM, SIGHUP and SIGQUIT do as Ctrl-C does.
`,
		},
	},
	Exits: []cli.Exit{
		{Status: cli.ExitOK, Text: "all pages that may be fetched were fetched, down to -depth"},
		{Status: cli.ExitFailed, Text: "some pages failed or could not be written, or there were none, or nothing but redirects"},
		{Status: cli.ExitUsage, Text: "the crawl could not begin"},
		{Status: cli.ExitStopped, Text: "hosts are left that did not answer, or asked for more time than -max-wait; -resume tries them again"},
		{Status: cli.ExitLimit, Text: "links are left because of -pages, -host-pages or -frontier; -resume with a higher number goes on, but not to those beyond -frontier"},
		{Status: cli.ExitInterrupted, Text: "it was interrupted; -resume goes on"},
	},
}
