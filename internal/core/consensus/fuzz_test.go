package consensus

import (
	"errors"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"trireme/lab/heap"
)

// FuzzDecodeChange reads any bytes as a membership change: it is refused as a violated invariant, or applying it to a
// membership leaves one, or says why not.
func FuzzDecodeChange(f *testing.F) {
	for _, cc := range []*raftpb.ConfChangeV2{
		changeTo(&raftpb.ConfState{Voters: []uint64{1, 2, 3}}, ForcedConf{Voters: []uint64{1}, Learners: []uint64{2}}), {},
	} {
		b, err := proto.Marshal(cc)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(true, b)
		f.Add(false, b)
	}
	f.Fuzz(func(t *testing.T, v2 bool, data []byte) {
		heap.Within(t, 64<<10+2048*len(data), func() {
			e := &raftpb.Entry{Index: new(uint64(7)), Data: data, Type: raftpb.EntryConfChange.Enum()}
			if v2 {
				e.Type = raftpb.EntryConfChangeV2.Enum()
			}
			cc, err := decodeChange(e)
			if err != nil {
				if !errors.Is(err, ErrInvariant) {
					t.Fatalf("unclassified: %v", err)
				}
				return
			}
			b, err := proto.Marshal(cc.(proto.Message))
			if err != nil {
				t.Fatal(err)
			}
			e.Data = b
			if again, err := decodeChange(e); err != nil || !proto.Equal(again.(proto.Message), cc.(proto.Message)) {
				t.Fatalf("%v became %v: %v", cc, again, err)
			}
		})
	})
}
