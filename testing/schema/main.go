// The schema tool knows the Kubernetes API types of the published Go modules.
//
//	go run . table     prints the schema table by which kube-wire reads and writes protobuf
//	go run . corpus    prints objects of every kind as Go writes them, in protobuf and in JSON
//	go run . frames    prints a list and a watch event as a server sends them
package main

import (
	"fmt"
	"os"
)

func main() {
	if len(os.Args) == 2 {
		switch os.Args[1] {
		case "table":
			printTable(os.Stdout)
			return
		case "corpus":
			printCorpus(os.Stdout)
			return
		case "frames":
			printFrames(os.Stdout)
			return
		}
	}
	fail("usage: go run . table | corpus | frames")
}

func fail(format string, arguments ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", arguments...)
	os.Exit(1)
}
