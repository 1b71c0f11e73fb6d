package generate

import (
	"cmp"
	"slices"
)

// inNames are the letters of generated names, in order.
const inNames = "2456789bcdfghjklmnpqrstvwxz"

// Order is the order of the first pods in which a server lists them, by namespace and name, if they have the names that Suffix gives.
func (p *Pods) Order(count int) []int {
	type place struct {
		prefix         string
		suffix, number int
	}
	places := make([]place, count)
	for number := range places {
		t := p.template(newRandom(p.seed, uint64(number)))
		places[number] = place{t.namespace + "/" + t.owner + "-", scrambled(number), number}
	}
	slices.SortFunc(places, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.prefix, b.prefix), cmp.Compare(a.suffix, b.suffix))
	})
	order := make([]int, count)
	for i, place := range places {
		order[i] = place.number
	}
	return order
}

// Suffix is a suffix of five letters that no other number below 14 million has: so many pods would meet with random ones.
func Suffix(number int) string {
	rest := scrambled(number)
	text := make([]byte, 5)
	for i := range text {
		text[len(text)-1-i] = inNames[rest%len(inNames)]
		rest /= len(inNames)
	}
	return string(text)
}

// scrambled spreads numbers over all suffixes, each to one of its own.
func scrambled(number int) int {
	const suffixes = 27 * 27 * 27 * 27 * 27
	return number * 8_675_309 % suffixes
}
