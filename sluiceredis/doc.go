// Package sluiceredis keeps limits in a Redis.
package sluiceredis
