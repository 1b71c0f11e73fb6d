// Package generate makes objects as varied as those of a real cluster, again and again the same from a seed.
package generate

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"time"
)

// random is a source of randomness for one object or template.
type random struct{ *rand.Rand }

func newRandom(seed, number uint64) random {
	return random{rand.New(rand.NewPCG(seed, number*0x9e3779b97f4a7c15+1))}
}

// between gives a number from low to high, both included.
func (r random) between(low, high int) int { return low + r.IntN(high-low+1) }

func (r random) chance(percent int) bool { return r.IntN(100) < percent }

func (r random) pick(words []string) string { return words[r.IntN(len(words))] }

// suffix is what the server appends to generated names.
func (r random) suffix(length int) string {
	const letters = "bcdfghjklmnpqrstvwxz2456789"
	text := make([]byte, length)
	for i := range text {
		text[i] = letters[r.IntN(len(letters))]
	}
	return string(text)
}

func (r random) hex(bytes int) string {
	raw := make([]byte, bytes)
	for i := range raw {
		raw[i] = byte(r.Uint32())
	}
	return hex.EncodeToString(raw)
}

func (r random) uid() string {
	text := r.hex(16)
	return fmt.Sprintf("%s-%s-4%s-a%s-%s", text[:8], text[8:12], text[13:16], text[17:20], text[20:])
}

// moment is a time within the year before the end of October 2026, to the second.
func (r random) moment() time.Time {
	end := time.Date(2026, 10, 31, 23, 59, 59, 0, time.UTC)
	return end.Add(-time.Duration(r.IntN(365*24*3600)) * time.Second)
}

func (r random) ip(network int) string {
	return fmt.Sprintf("10.%d.%d.%d", network+r.IntN(64), r.IntN(256), 1+r.IntN(254))
}

// sentence is text of about so many bytes, as people put into annotations.
func (r random) sentence(bytes int) string {
	text := ""
	for len(text) < bytes {
		text += r.pick(words) + " "
		if r.chance(25) {
			text += r.hex(3) + " "
		}
	}
	return text[:bytes]
}

func (r random) pickNumber(a, b int) int {
	if r.chance(50) {
		return a
	}
	return b
}

var words = []string{
	"account", "alert", "analytics", "api", "archive", "auth", "backend", "balance", "batch", "billing", "booking", "broker", "cache",
	"campaign", "cart", "catalog", "chat", "checkout", "cluster", "comment", "config", "consumer", "content", "coupon", "crawler",
	"customer", "dashboard", "delivery", "device", "digest", "discovery", "dispatch", "document", "edge", "email", "engine", "event",
	"export", "feed", "fraud", "frontend", "gateway", "geo", "graph", "identity", "image", "import", "index", "ingest", "inventory",
	"invoice", "ledger", "license", "loader", "location", "login", "mail", "market", "media", "message", "metrics", "mirror", "monitor",
	"notify", "order", "partner", "payment", "photo", "planner", "policy", "portal", "pricing", "product", "profile", "proxy", "queue",
	"quota", "rating", "recommend", "refund", "registry", "relay", "report", "review", "router", "schedule", "search", "session",
	"settings", "shipping", "signup", "snapshot", "stock", "storage", "stream", "survey", "sync", "tax", "tenant", "thumbnail", "ticket",
	"token", "tracker", "transfer", "upload", "usage", "vault", "video", "voucher", "wallet", "warehouse", "webhook", "worker",
}
