package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
)

// Below the range from which Linux takes ports for outgoing connections (32768 and up): a server that is restarted must
// find its port free again, however many clients keep knocking in between.
const firstPort, lastPort = 20000, 29999

// printPorts prints ports that nobody listens on, one a line.
func printPorts(count string, taken []string) error {
	wanted, err := strconv.Atoi(count)
	if err != nil {
		return fmt.Errorf("%q is not a number of ports", count)
	}
	for _, offset := range rand.Perm(lastPort - firstPort + 1) {
		if wanted == 0 {
			return nil
		}
		port := strconv.Itoa(firstPort + offset)
		if slices.Contains(taken, port) {
			continue
		}
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port))
		if err != nil {
			continue
		}
		listener.Close()
		fmt.Println(port)
		wanted--
	}
	if wanted > 0 {
		return fmt.Errorf("no free port between %d and %d", firstPort, lastPort)
	}
	return nil
}
