package main

import (
	_ "embed"
	"fmt"
)

// Packages for Node.js, as their own documentation shows them; npm/zoo.js is the program.
func init() {
	for _, p := range []struct {
		kind, pkg, says string
		sizes           [][2]int // n, seconds
	}{
		{"express", "express-rate-limit", "429, RateLimit of draft 8, Retry-After", [][2]int{{20, 1}, {30, 10}}},
		{"express-legacy", "express-rate-limit", "429, X-RateLimit-*, Retry-After", [][2]int{{20, 1}, {30, 10}}},
		{"flexible", "rate-limiter-flexible", "429, Retry-After with a fraction", [][2]int{{20, 1}, {30, 10}}},
		{"flexible-bare", "rate-limiter-flexible", "429, no header", [][2]int{{20, 1}, {30, 10}}},
		{"flexible-block", "rate-limiter-flexible", "429, no header; a ban of 5 s", [][2]int{{20, 1}}},
		{"fastify", "@fastify/rate-limit", "429, x-ratelimit-*, retry-after", [][2]int{{20, 1}, {30, 10}}},
		{"fastify-continue", "@fastify/rate-limit", "429, x-ratelimit-*; each refused call begins the window anew", [][2]int{{30, 10}}},
		{"fastify-ban", "@fastify/rate-limit", "429, and 403 from the fourth refused call of a window on", [][2]int{{30, 10}}},
		{"koa", "koa-ratelimit", "429, Retry-After rounded down, Reset with a fraction", [][2]int{{20, 1}, {30, 10}}},
		{"slowdown", "express-slow-down", "no refusal: calls above the limit are delayed", [][2]int{{20, 1}}},
	} {
		for _, size := range p.sizes {
			add(nodeServer(fmt.Sprintf("%s-%din%d", p.kind, size[0], size[1]), p.kind, p.pkg, size[0], size[1], p.says))
		}
	}
	s := nodeServer("short-express-50in1", "express", "express-rate-limit", 50, 1, "429, RateLimit of draft 8, Retry-After")
	s.group, s.items = short, 300
	add(s)
}

//go:embed npm/zoo.js
var zooJS string

func nodeServer(name, kind, pkg string, n, per int, says string) server {
	return server{name: name, group: npm, limiter: pkg, says: says, limit: windowOf(float64(n), float64(per)),
		needs: []need{aProgram("node", "apt-get install nodejs npm"), aPackage(pkg)},
		start: func(r *real) (string, error) {
			return r.program(map[string]string{"zoo.js": zooJS}, "env", "NODE_PATH=@NODE@/node_modules", "node", "@DIR@/zoo.js", kind, fmt.Sprint(n), fmt.Sprint(per), "@PORT@")
		}}
}
