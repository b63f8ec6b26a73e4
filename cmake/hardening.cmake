# What makes a bug harder to use for an attacker, in optimized builds without sanitizers (which
# look for more than this does). tests/check_hardening.py holds the built files against it.
#
#   PIE, full RELRO       the program lies anywhere, and what the loader has resolved is read-only
#   no executable stack
#   stack protector       a canary in every function with an array or an address taken
#   stack clash           a large frame touches all its pages: the guard page is met
#                         (neither in the kernels: RADISH_KERNEL_OPTIONS)
#   FORTIFY               libc's functions check the sizes that the compiler knows
#   CET / BTI and PAC     calls and jumps land where some are expected, returns where they came from
option(RADISH_HARDEN "build with stack protector, FORTIFY, RELRO and CET" ON)
if(NOT RADISH_HARDEN OR RADISH_SANITIZE)
  return()
endif()
include(CheckCCompilerFlag)
include(CheckLinkerFlag)
include(CheckPIESupported)
check_pie_supported(LANGUAGES C)

# For the arithmetic of attention and matrices (room attn; gemm and ops of room model), whose calls are
# short: canaries and probes took 5% of decoding with a small model. Their shapes were checked when the
# model was loaded, and nothing there reads bytes of a client.
set(RADISH_KERNEL_OPTIONS -fno-stack-protector -fno-stack-clash-protection)

set(optimized "$<CONFIG:Release,RelWithDebInfo,MinSizeRel>")
set(flags -fstack-protector-strong -fstack-clash-protection)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND flags -fcf-protection=full)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  list(APPEND flags -mbranch-protection=standard)
endif()
foreach(flag ${flags})
  string(MAKE_C_IDENTIFIER "HAS${flag}" has)
  check_c_compiler_flag(${flag} ${has})
  if(${has})
    add_compile_options($<${optimized}:${flag}>)
  endif()
endforeach()
add_compile_options($<${optimized}:-U_FORTIFY_SOURCE> $<${optimized}:-D_FORTIFY_SOURCE=2>)
foreach(flag -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack)
  string(MAKE_C_IDENTIFIER "HAS${flag}" has)
  check_linker_flag(C ${flag} ${has})
  if(${has})
    add_link_options($<${optimized}:${flag}>)
  endif()
endforeach()
