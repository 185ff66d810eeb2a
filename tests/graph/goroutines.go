// The configurable service of a service graph in the runtime of goroutines: what `graphnode` (tests/src/graph/node) is with threads and with an
// event loop, by Go's own server and client of HTTP. It takes every connection, and opens as many as its calls need.
// Usage: graphnode PART.json; orders on standard input, a line for each on standard output.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// A caller lets an idle connection go after this, sooner than the other end does.
const keptMax = 4 * time.Second

// CLOCK_THREAD_CPUTIME_ID of clock_gettime(2), which the standard library does not name.
const clockThreadCPU = 3

// One retry, in the unit of budgets, and how much of it is saved up at most.
const (
	retry    = 1000
	savedMax = 10 * retry
)

const body = `{"served":true,"note":"a body of about two hundred bytes, as small answers of services have it, so that an answer is one segment and no more than that"}` + "\n"

// What a service is told (tests/src/graph/part.rs).
type part struct {
	Listen        string `json:"listen"`
	Backlog       int    `json:"backlog"`
	CPUMicros     int64  `json:"cpu_us"`
	SleepMicros   int64  `json:"sleep_us"`
	AllocateBytes int    `json:"allocate_bytes"`
	Locks         bool   `json:"locks"`
	Calls         []call `json:"calls"`
}

type call struct {
	To            string `json:"to"`
	SharePercent  uint64 `json:"share_percent"`
	Pool          int    `json:"pool"`
	TimeoutMillis int64  `json:"timeout_ms"`
	Retries       int    `json:"retries"`
	BudgetPercent *int64 `json:"budget_percent"`

	client *http.Client
	saved  atomic.Int64
}

type server struct {
	part    part
	lock    sync.RWMutex
	percent atomic.Int64
	begun   atomic.Uint64
}

func main() {
	if err := serve(); err != nil {
		fmt.Fprintf(os.Stderr, "graphnode: %v\n", err)
		os.Exit(1)
	}
}

func serve() error {
	if len(os.Args) != 2 {
		return fmt.Errorf("usage: graphnode PART.json")
	}
	text, err := os.ReadFile(os.Args[1])
	if err != nil {
		return err
	}
	s := &server{}
	if err := json.Unmarshal(text, &s.part); err != nil {
		return fmt.Errorf("%s: %w", os.Args[1], err)
	}
	s.percent.Store(100)
	for i := range s.part.Calls {
		c := &s.part.Calls[i]
		c.saved.Store(retry)
		c.client = &http.Client{
			Timeout: time.Duration(c.TimeoutMillis) * time.Millisecond,
			Transport: &http.Transport{
				MaxIdleConnsPerHost: c.Pool,
				IdleConnTimeout:     keptMax,
				DisableKeepAlives:   c.Pool == 0,
				DisableCompression:  true,
			},
		}
	}
	listener, err := net.Listen("tcp4", s.part.Listen)
	if err != nil {
		return err
	}
	if err := setBacklog(listener, s.part.Backlog); err != nil {
		return err
	}
	go obey(s.carryOut)
	fmt.Println("ready")
	return http.Serve(listener, s)
}

// Once more on a socket that listens, listen(2) sets the queue's length; the standard library asks for the most.
func setBacklog(listener net.Listener, backlog int) error {
	raw, err := listener.(*net.TCPListener).SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = syscall.Listen(int(fd), backlog) }); err != nil {
		return err
	}
	return failed
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	status := s.request(r.Context())
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	// A connection that breaks is its client's loss.
	_, _ = io.WriteString(w, body)
}

// Serves one request and returns the status of its answer.
func (s *server) request(ctx context.Context) int {
	if s.part.Locks {
		// It guards nothing: it is there to be waited for.
		s.lock.RLock()
		s.lock.RUnlock()
	}
	number := s.begun.Add(1)
	if s.part.AllocateBytes > 0 {
		piece := make([]byte, s.part.AllocateBytes)
		for i := range piece {
			piece[i] = 1
		}
		runtime.KeepAlive(piece)
	}
	spin(s.part.CPUMicros * s.percent.Load() / 100)
	if s.part.SleepMicros > 0 {
		time.Sleep(time.Duration(s.part.SleepMicros) * time.Microsecond)
	}
	for i := range s.part.Calls {
		// Calls of the same share are not all made by the same requests.
		if s.part.Calls[i].isMade(number+37*uint64(i)) && !s.part.Calls[i].isAnswered(ctx) {
			return http.StatusServiceUnavailable
		}
	}
	return http.StatusOK
}

func (c *call) isMade(number uint64) bool {
	return number*c.SharePercent/100 != (number-1)*c.SharePercent/100
}

// Whether a call was answered, at once or when it was tried again.
func (c *call) isAnswered(ctx context.Context) bool {
	if c.BudgetPercent != nil {
		if c.saved.Add(retry**c.BudgetPercent/100) > savedMax {
			c.saved.Store(savedMax)
		}
	}
	for failed := 0; ; {
		if c.ask(ctx) {
			return true
		}
		failed++
		if failed > c.Retries || !c.mayRetry() {
			return false
		}
	}
}

// Takes a retry from what was saved up for it, where there is a budget.
func (c *call) mayRetry() bool {
	if c.BudgetPercent == nil {
		return true
	}
	for {
		saved := c.saved.Load()
		if saved < retry {
			return false
		}
		if c.saved.CompareAndSwap(saved, saved-retry) {
			return true
		}
	}
}

func (c *call) ask(ctx context.Context) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.To+"/call", nil)
	if err != nil {
		return false
	}
	answer, err := c.client.Do(request)
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	return err == nil && answer.StatusCode == http.StatusOK
}

// CPU that this thread has used, ns.
func threadCPU() int64 {
	var time syscall.Timespec
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockThreadCPU, uintptr(unsafe.Pointer(&time)), 0)
	return time.Nano()
}

// Takes so much CPU, however long that takes. The goroutine stays on its thread meanwhile, whose clock is asked.
func spin(micros int64) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for end := threadCPU() + micros*1000; threadCPU() < end; {
		for i := 0; i < 200; i++ {
			spun.Load()
		}
	}
}

var spun atomic.Uint64

// When an order hurt (tests/src/lab: Span).
type span struct {
	Start int64 `json:"start_unix_ns"`
	End   int64 `json:"end_unix_ns"`
}

// Has each order carried out, one after the other, and ends the process when there are no more: whoever started it is gone.
func obey(carryOut func(words []string) (span, error)) {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		hurt, err := carryOut(strings.Fields(lines.Text()))
		if err != nil {
			fmt.Fprintf(os.Stderr, "graphnode: %s: %v\n", lines.Text(), err)
			os.Exit(1)
		}
		fmt.Printf("{\"start_unix_ns\":%d,\"end_unix_ns\":%d}\n", hurt.Start, hurt.End)
	}
	os.Exit(0)
}

func (s *server) carryOut(words []string) (span, error) {
	numbers := make([]int64, 0, 2)
	for i, word := range words {
		if i == 0 {
			continue
		}
		number, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return span{}, err
		}
		numbers = append(numbers, number)
	}
	switch {
	case len(numbers) == 1 && words[0] == "lock":
		s.lock.Lock()
		defer s.lock.Unlock()
		return slept(numbers[0]), nil
	case len(numbers) == 2 && words[0] == "heavier":
		s.percent.Store(numbers[0])
		defer s.percent.Store(100)
		return slept(numbers[1]), nil
	}
	return span{}, fmt.Errorf("no order of a server of goroutines: lock MS or heavier PERCENT MS")
}

func slept(millis int64) span {
	start := time.Now().UnixNano()
	time.Sleep(time.Duration(millis) * time.Millisecond)
	return span{start, time.Now().UnixNano()}
}
