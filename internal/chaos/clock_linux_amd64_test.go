package chaos_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/lease"
)

// The wall clock of a worker process can be stepped while it works. A program in Go asks the
// vDSO for the time, which libfaketime does not reach, so the worker puts a function of its
// own in the place of the vDSO's: it adds to the wall clock what a file says, which the
// test writes. Elapsed time is real.

// ledgerNow is the clock of the ledger, which is the same for all processes.
func ledgerNow() time.Time { return time.Unix(0, int64(lease.Elapsed())) }

const pageSize = 4096

// stepClock has the wall clock of this process be ahead by the seconds that a file has, if
// the test names one.
func stepClock() error {
	name := os.Getenv("CHAOS_CLOCK")
	if name == "" {
		return nil
	}
	file, err := os.Open(name) //nolint:gosec // of the test
	if err != nil {
		return err
	}
	ahead, err := syscall.Mmap(int(file.Fd()), 0, pageSize, syscall.PROT_READ, syscall.MAP_SHARED) //nolint:gosec // few files
	if err != nil {
		return err
	}
	at, err := vdsoFunction("__vdso_clock_gettime")
	if err != nil {
		return err
	}
	code, _, errno := syscall.Syscall6(syscall.SYS_MMAP, at&^(pageSize-1)-1<<24, pageSize, syscall.PROT_READ|syscall.PROT_WRITE|syscall.PROT_EXEC,
		syscall.MAP_PRIVATE|syscall.MAP_ANON, ^uintptr(0), 0)
	if errno != 0 {
		return errno
	}
	memory, err := os.OpenFile("/proc/self/mem", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { _ = memory.Close() }()
	if _, err := memory.WriteAt(steppedClock(uintptr(unsafe.Pointer(&ahead[0]))), int64(code)); err != nil { //nolint:gosec // an address
		return err
	}
	begin := make([]byte, 8)                                   // replaced as one
	if _, err := memory.ReadAt(begin, int64(at)); err != nil { //nolint:gosec // an address
		return err
	}
	distance := int64(code) - int64(at) - 5 //nolint:gosec // addresses
	if distance != int64(int32(distance)) { //nolint:gosec // whether it fits
		return fmt.Errorf("there is no room near the vDSO: %d", distance)
	}
	begin[0] = 0xE9                                            // jmp
	binary.LittleEndian.PutUint32(begin[1:], uint32(distance)) //nolint:gosec // in two's complement
	_, err = memory.WriteAt(begin, int64(at))                  //nolint:gosec // an address
	return err
}

// steppedClock is clock_gettime in the code of the machine, with the seconds at an address
// added to the wall clock.
func steppedClock(ahead uintptr) []byte {
	code := []byte{
		0xB8, 0xE4, 0x00, 0x00, 0x00, // mov eax, 228 (clock_gettime)
		0x0F, 0x05, // syscall
		0x85, 0xFF, // test edi, edi (0: the wall clock)
		0x75, 0x10, // jnz to the ret
		0x48, 0xB9, // mov rcx, ahead
	}
	code = binary.LittleEndian.AppendUint64(code, uint64(ahead))
	return append(code,
		0x48, 0x8B, 0x09, // mov rcx, [rcx]
		0x48, 0x01, 0x0E, // add [rsi], rcx
		0xC3) // ret
}

// vdsoFunction is where a function of the vDSO begins.
func vdsoFunction(name string) (uintptr, error) {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return 0, err
	}
	for _, line := range strings.Split(string(maps), "\n") {
		var from, to uintptr
		if !strings.HasSuffix(line, "[vdso]") {
			continue
		}
		if _, err := fmt.Sscanf(line, "%x-%x", &from, &to); err != nil {
			return 0, err
		}
		image := make([]byte, to-from)
		memory, err := os.Open("/proc/self/mem")
		if err != nil {
			return 0, err
		}
		defer func() { _ = memory.Close() }()
		if _, err := memory.ReadAt(image, int64(from)); err != nil { //nolint:gosec // an address
			return 0, err
		}
		object, err := elf.NewFile(bytes.NewReader(image))
		if err != nil {
			return 0, err
		}
		symbols, err := object.DynamicSymbols()
		if err != nil {
			return 0, err
		}
		for _, symbol := range symbols {
			if symbol.Name == name {
				return from + uintptr(symbol.Value), nil
			}
		}
	}
	return 0, fmt.Errorf("there is no %s in the vDSO", name)
}

// The clocks of two machines differ from the server's, and from each other's, and one of them
// steps all the time, forwards and backwards by hours.
func TestLimitsHoldWhileClocksStep_PostgreSQL(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	clocks := []string{clockFile(t), clockFile(t)}
	setClock(t, clocks[1], -90*time.Minute)
	back := false
	stepping(t, clocks[0], func() time.Duration {
		by := time.Hour + rand.N(time.Hour)
		if back = !back; back {
			return -by
		}
		return by
	})
	limitsHold(t, dsn, dsn, clocks...).apart(time.Hour)
}

// The clock of the machine is the store's own here. It is set back, again and again, by up to an
// hour; what a step forwards does to leases is another matter.
func TestLimitsHoldWhileTheClockIsSetBack_SQLite(t *testing.T) {
	t.Parallel()
	dsn, clock := sqliteDSN(t), clockFile(t)
	stepping(t, clock, func() time.Duration { return -time.Duration(rand.Int64N(int64(time.Hour))) })
	limitsHold(t, dsn, dsn, clock).apart(10 * time.Minute)
}

func clockFile(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "clock")
	require.NoError(t, os.WriteFile(name, make([]byte, pageSize), 0o600))
	return name
}

func setClock(t *testing.T, name string, ahead time.Duration) {
	t.Helper()
	file, err := os.OpenFile(name, os.O_WRONLY, 0) //nolint:gosec // of the test
	require.NoError(t, err)
	_, err = file.WriteAt(binary.LittleEndian.AppendUint64(nil, uint64(int64(ahead/time.Second))), 0) //nolint:gosec // in two's complement
	require.NoError(t, err)
	require.NoError(t, file.Close())
}

// stepping steps a clock several times a second until the test ends.
func stepping(t *testing.T, name string, ahead func() time.Duration) {
	t.Helper()
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			setClock(t, name, ahead())
			select {
			case <-end:
				return
			case <-time.After(150 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() { close(end); <-ended })
}

// apart expects that the wall clocks of executions have differed by more than that. On a busy
// machine few runs may have met a step: then more are executed.
func (p *pit) apart(most time.Duration) {
	p.t.Helper()
	for more := 3; more > 0 && p.stepped() <= most; more-- {
		p.holds(p.trouble)
	}
	require.Greater(p.t, p.stepped(), most)
}

// stepped is how far the wall clocks of workers have gone apart, by what the ledger says.
func (p *pit) stepped() (most time.Duration) {
	files, err := filepath.Glob(filepath.Join(p.dir, "*"))
	require.NoError(p.t, err)
	var least, greatest int64
	for _, name := range files {
		text, err := os.ReadFile(name) //nolint:gosec // of the test
		require.NoError(p.t, err)
		for _, line := range strings.Split(string(text), "\n") {
			var what, run string
			var fence, at, wall int64
			if n, _ := fmt.Sscan(line, &what, &run, &fence, &at, &wall); n < 5 {
				continue
			}
			wall -= at
			if least == 0 || wall < least {
				least = wall
			}
			greatest = max(greatest, wall)
		}
	}
	return time.Duration(greatest - least)
}
