// Package child is what every Go process of the benchmarks does: it speaks with the runner by lines, and gives memory back when it is to
// be measured.
package child

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"time"
)

var input = bufio.NewReader(os.Stdin)

// Say tells the runner that something is done, and waits until it has measured. It ends the process if the runner is gone.
func Say(format string, values ...any) {
	fmt.Printf(format+"\n", values...)
	if _, err := input.ReadString('\n'); err != nil {
		os.Exit(0)
	}
}

// Hear waits for a line of the runner. It ends the process if the runner is gone.
func Hear() string {
	line, err := input.ReadString('\n')
	if err != nil {
		os.Exit(0)
	}
	return line
}

// EndWithRunner ends this process soon after the runner's end, whatever it is doing then. A runner that is killed cannot see to that itself.
func EndWithRunner() {
	runner := os.Getppid()
	go func() {
		for os.Getppid() == runner {
			time.Sleep(time.Second)
		}
		os.Exit(0)
	}()
}

// GiveBack returns memory that is not in use to the system.
func GiveBack() {
	runtime.GC()
	debug.FreeOSMemory()
}
