// Command helper does for the control-plane script what bash cannot do without further tools: credentials, free ports,
// requests over TLS, and compaction of etcd. It needs nothing but Go's standard library.
package main

import (
	"fmt"
	"os"
	"strconv"
)

const usage = `usage:
  helper credentials DIR               write a CA, the server's certificate, the service account key and a token into DIR
  helper ports COUNT [TAKEN...]        print COUNT free loopback ports, none of them TAKEN
  helper get URL [CA-FILE TOKEN-FILE]  succeed if a GET of URL answers 200
  helper compact ETCD-URL              compact etcd to its current revision and print that revision`

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "helper:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 2 && args[0] == "credentials":
		return writeCredentials(args[1])
	case len(args) >= 2 && args[0] == "ports":
		return printPorts(args[1], args[2:])
	case len(args) == 2 && args[0] == "get":
		return get(args[1], "", "")
	case len(args) == 4 && args[0] == "get":
		return get(args[1], args[2], args[3])
	case len(args) == 2 && args[0] == "compact":
		revision, err := compact(args[1])
		if err == nil {
			fmt.Println(strconv.FormatInt(revision, 10))
		}
		return err
	}
	return fmt.Errorf("cannot make sense of %q\n%s", args, usage)
}
