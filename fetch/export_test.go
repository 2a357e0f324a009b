package fetch

// SetNoteEvery sets how far apart in bytes noted batches are at least, for chunks
// fetched from now on.
func (r *Reader) SetNoteEvery(n int) { r.noteEvery = n }
