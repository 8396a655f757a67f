package main

import (
	"os"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// counters are shared with child processes through a mapped file, so that
// counting costs them nothing. Each process has two slots of its own.
type counters struct {
	path   string
	memory []byte
}

const (
	slots    = 16
	slotSize = 64 // a cache line
)

// newCounters makes the file; a child opens it by its path.
func newCounters(dir string) (*counters, error) {
	file, err := os.CreateTemp(dir, "counters-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	if err := file.Truncate(slots * slotSize); err != nil {
		return nil, err
	}
	return openCounters(file.Name())
}

func openCounters(path string) (*counters, error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	memory, err := syscall.Mmap(int(file.Fd()), 0, slots*slotSize, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return &counters{path: path, memory: memory}, nil
}

// at is one slot. Mapped memory is aligned to a page.
func (c *counters) at(slot int) *atomic.Int64 {
	return (*atomic.Int64)(unsafe.Pointer(&c.memory[slot*slotSize]))
}

// handled is what all workers have executed; they have the slots below
// enqueuedSlot.
func (c *counters) handled() int64 {
	var sum int64
	for slot := range enqueuedSlot {
		sum += c.at(slot).Load()
	}
	return sum
}

// least is what the one of so many workers has executed that has the fewest.
func (c *counters) least(workers int) int64 {
	least := c.at(0).Load()
	for slot := 1; slot < workers; slot++ {
		least = min(least, c.at(slot).Load())
	}
	return least
}

// enqueuedSlot counts what the enqueuer has stored.
const enqueuedSlot = slots - 1

func (c *counters) close() {
	_ = syscall.Munmap(c.memory)
	_ = os.Remove(c.path)
}
