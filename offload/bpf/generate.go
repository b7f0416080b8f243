package bpf

//go:generate go tool bpf2go -cc clang-14 -strip llvm-strip-14 -target bpfel -type bpf_sk_lookup -type answer guard c/guard.bpf.c -- -mcpu=v3 -nostdinc -Wall -Wextra -Werror
//go:generate go tool bpf2go -cc clang-14 -strip llvm-strip-14 -target bpfel -type address -type tuple4 -type element4 -type element6 -type whose -type life -type life_state -type pool_answer -type client -type picked -type steer_happening -type steer_event -type ending -type steer_count -type asked -type keep -type listening -type direction -type gate -type mirror -type seen -type rewrite -type carried -type way -type track -type path -type happening -type event -type __sk_buff flow c/flow.bpf.c -- -mcpu=v3 -nostdinc -Wall -Wextra -Werror
