package rivals

import "testing"

// TestPortsOfTwoProcesses: two processes that begin to look at the same place get no port twice, although nothing
// listens on those of the other one yet. One process gets the same ones again when its block is used up.
func TestPortsOfTwoProcesses(t *testing.T) {
	given := map[int]int{} // by port: the process that has it
	for process := range 2 {
		p := portPool{process: 7}
		t.Cleanup(func() {
			if p.claim != nil {
				p.claim.Close()
			}
		})
		for range 2 * blockSize / 50 {
			base := p.take(50)
			for port := base; port < base+50; port++ {
				if by, is := given[port]; is && by != process {
					t.Fatalf("port %d is given to both processes", port)
				}
				if given[port] = process; port < portFloor || port >= portCeil {
					t.Fatalf("port %d", port)
				}
			}
		}
	}
}
