package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// tick is the unit of /proc/<pid>/stat; it has been 10 ms on Linux forever.
const tick = 10 * time.Millisecond

// familyCPU is what a process, its living children and its dead ones have used.
func familyCPU(pid int) (time.Duration, error) {
	own, err := readStat(pid)
	if err != nil {
		return 0, err
	}
	total := own.used + own.usedByDead
	paths, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range paths {
		child, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if stat, err := readStat(child); err == nil && stat.parent == pid {
			total += stat.used
		}
	}
	return time.Duration(total) * tick, nil
}

// stat is one process's part of /proc, in ticks.
type stat struct {
	parent           int
	used, usedByDead int64 // by the process; by children that were waited for
}

func readStat(pid int) (stat, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, err
	}
	_, rest, _ := strings.Cut(string(text), ") ") // the name before may hold anything
	fields := strings.Fields(rest)
	if len(fields) < 15 {
		return stat{}, fmt.Errorf("process %d: cannot read its usage", pid)
	}
	number := func(i int) int64 { n, _ := strconv.ParseInt(fields[i], 10, 64); return n }
	return stat{parent: int(number(1)), used: number(11) + number(12), usedByDead: number(13) + number(14)}, nil
}

// machineCPU is what all processes of this machine have used.
func machineCPU() time.Duration {
	fields := strings.Fields(firstLine("/proc/stat")) // cpu user nice system idle iowait irq softirq steal …
	var total int64
	for i, text := range fields {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil && i <= 8 && i != 4 && i != 5 {
			total += n
		}
	}
	return time.Duration(total) * tick
}

// ownCPU is what this process has used.
func ownCPU() time.Duration {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// ownMemory is this process's resident set, in bytes.
func ownMemory() int64 {
	text, err := os.ReadFile("/proc/self/statm")
	fields := strings.Fields(string(text))
	if err != nil || len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize())
}

// ownPeak is the most that this process's resident set has been, in bytes.
func ownPeak() int64 {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	return usage.Maxrss << 10
}
